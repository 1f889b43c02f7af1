"""The models behind proposals: encoding, Gaussian process, acquisition; values in and out."""
