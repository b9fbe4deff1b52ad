"""Header fields by which a client may pretend to send another request, behind any proxy."""

SPOOFS = [
    {"x_original_uri": "/free"},
    {"x_forwarded_uri": "/free"},
    {"x_original_method": "POST", "x_forwarded_method": "POST"},
    {"x_original_host": "free.example.org", "x_forwarded_host": "free.example.org"},
    {"x_original_uri": "/free", "x_forwarded_uri": "/free", "x_original_host": "free.example.org"},
    {"x_original_uri": "/free", "x_forwarded_uri": "/free", "x_forwarded_host": "free.example.org"},
]
