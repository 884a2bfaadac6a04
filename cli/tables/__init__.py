"""One file a noun: JSON of the API in, a table out. Pure: the clock is an argument."""
