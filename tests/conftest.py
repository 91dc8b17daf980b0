import signal

import hypothesis
import torch

# The same examples on every machine and at every run; no deadline, since machines differ.
hypothesis.settings.register_profile("krylow", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.load_profile("krylow")
torch.set_num_threads(1)
# A shell's background jobs ignore Ctrl-C, and tests of it would then wait in vain.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
