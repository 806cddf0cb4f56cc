print("bugle")
