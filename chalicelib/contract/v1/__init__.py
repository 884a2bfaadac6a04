"""The resources under `/api/v1`. Dates are RFC 3339, money is US dollars, and `why` is a text for people."""
