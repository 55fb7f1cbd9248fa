"""High Performance LINPACK: a dense system of equations in double precision, solved by all phones together.

The matrix, with the right-hand side as one more column, is dealt out in square blocks over a grid of processes
(layout). Column by column of blocks, a panel is factored with partial pivoting (panel) and handed to everybody, rows
are swapped (swap) and what is left is updated (eliminate). The next panel is factored before the rest of the update,
and travels during it. Then the triangle is solved (substitute), and the answer is checked against the matrix, made once
more (residual).
"""
