"""Who is who: providers of people's accounts, and authorities that certify hosts."""
