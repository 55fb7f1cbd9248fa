"""High-Performance LINPACK: all phones together solve a dense linear system in double precision.

The matrix, with the right-hand side as an extra column, has a block-cyclic layout over a process grid (matrix). For
each block column, a panel is factored with partial pivoting (panel) and broadcast, rows are swapped (row_swaps) and the
trailing matrix is updated (factorize). Lookahead: the next panel is factored before the rest of the update, and is
broadcast during it. Then the triangular system is solved, and the solution is checked against the matrix, which
is generated again (solution).
"""
