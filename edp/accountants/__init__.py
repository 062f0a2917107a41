"""What a composition of Gaussian mechanisms costs: each module prices it by another valid bound.

`composition` says what is priced. `gaussian` is exact where nothing was sampled; `pld`, `rdp` and
`participation` are upper bounds where batches were drawn by Poisson sampling, each the best in another range
of noise.
"""
