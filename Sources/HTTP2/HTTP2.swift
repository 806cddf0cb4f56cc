// HTTP2.
