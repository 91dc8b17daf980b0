// The extension module krylow._native: arrays in, arrays out, no numerical decision.
#include "bind.h"
#include "levels.h"

NB_MODULE(_native, m) {
    m.doc() = "Compiled loops over numpy arrays; they choose nothing, and hold no lock of the interpreter.";
    krylow::bind_product(m);
    krylow::bind_dense(m);
    krylow::bind_graph(m);
    krylow::bind_elimination(m);
    m.def("level", [] { return static_cast<int>(krylow::level()); },
          "Return the level of the instruction set in use: 2, 3 or 4 for x86-64-v2 to v4, otherwise 1.");
    m.def("limit_level", &krylow::limit_level, nanobind::arg("most"), "Use no higher level than this one (for tests).");
}
