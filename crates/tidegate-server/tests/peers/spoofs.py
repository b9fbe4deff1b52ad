"""What a client may send to be taken for another request, whichever proxy stands before it."""

SPOOFS = [
    {"x_original_uri": "/free"},
    {"x_forwarded_uri": "/free"},
    {"x_original_method": "POST", "x_forwarded_method": "POST"},
    {"x_original_host": "free.example.org", "x_forwarded_host": "free.example.org"},
    {"x_original_uri": "/free", "x_forwarded_uri": "/free", "x_original_host": "free.example.org"},
    {"x_original_uri": "/free", "x_forwarded_uri": "/free", "x_forwarded_host": "free.example.org"},
]
