"""A read-only HTTP service over promoted versions, and its page for a browser."""
