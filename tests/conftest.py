import hypothesis
import torch

# The same examples on every machine and at every run; no deadline, since machines differ.
hypothesis.settings.register_profile("krylow", deadline=None, derandomize=True, max_examples=100)
hypothesis.settings.load_profile("krylow")
torch.set_num_threads(1)
