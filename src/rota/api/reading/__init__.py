"""What a request carries, read within bounds; what is wrong with it is said in plain words."""
