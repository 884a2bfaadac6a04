"""A provider whose answers are XML, and whose package needs an SDK to read them that no other function has."""
