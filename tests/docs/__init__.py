"""Every snippet of the documents, run or checked."""
