"""The paper's Table 2: pair classification with low-pass attention, beside the controls that the paper leaves out."""
