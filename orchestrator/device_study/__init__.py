"""What single devices can do, gathered from them and laid beside what was published."""
