"""Jobs: modules that submit, queue, spill, start, finish, retry and delete them."""
