"""Two questions to a phone: can it be a worker (`worker`), and is it what we believe phones are (`examine`)?"""
