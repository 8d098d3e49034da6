"""A read-only HTTP service over promoted versions, and the page for people that it serves."""
