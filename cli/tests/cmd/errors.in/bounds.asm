store sram_base=2048 y_size=1 x_size=1
finish
