"""What SCIM 2.0 (RFC 7643 and 7644) asks of an API: its filters, patches and errors, and its resources as JSON. Its
routes are in `routes/scim`."""

PREFIX = "/scim/v2/"
MEDIA = "application/scim+json"
USER = "urn:ietf:params:scim:schemas:core:2.0:User"
GROUP = "urn:ietf:params:scim:schemas:core:2.0:Group"
LIST = "urn:ietf:params:scim:api:messages:2.0:ListResponse"
ERROR = "urn:ietf:params:scim:api:messages:2.0:Error"
LONGEST_PAGE = 200
MOST_OPERATIONS = 100  # of a patch
