// EventLoop.
