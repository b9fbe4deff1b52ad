-- Leaky bucket as a meter. Twin of tidegate-core/src/algorithm/leaky.rs; both obey spec/leaky.md.
-- The free capacity of a leaky bucket is the number of tokens in a token bucket, so both use the same function.
local leaky = token_bucket
