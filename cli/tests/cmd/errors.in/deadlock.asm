gemm uop_end=1 iter_out=1 iter_in=1 pop_prev
finish
