finish
load.inp x_size=70000
