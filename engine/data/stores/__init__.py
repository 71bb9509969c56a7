"""All rows of a source tokenised, once, by several processes, into files that are mapped."""
