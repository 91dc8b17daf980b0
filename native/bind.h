// What the module is made of.
#pragma once

#include <nanobind/nanobind.h>

namespace krylow {

void bind_product(nanobind::module_& m);
void bind_dense(nanobind::module_& m);
void bind_graph(nanobind::module_& m);
void bind_elimination(nanobind::module_& m);

}  // namespace krylow
