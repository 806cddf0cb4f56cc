// Admin.
