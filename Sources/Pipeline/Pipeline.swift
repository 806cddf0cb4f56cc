// Pipeline.
