"""What training takes on a rack before anything runs there: modelled, step by step of the core and hop by hop."""
