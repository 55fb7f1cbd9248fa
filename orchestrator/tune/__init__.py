"""What measurement found for each kind of phone, and which phones it holds for."""
