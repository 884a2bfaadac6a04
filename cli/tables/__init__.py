"""One file per noun: the API's JSON in, a table out. Pure: the clock is an argument."""
