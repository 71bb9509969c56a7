"""The kinds of records beside those of the journal, and what all of them share."""
