"""The laboratory: the paper's tables, races against other libraries, records and their report."""
