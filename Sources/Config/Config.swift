// Config.
