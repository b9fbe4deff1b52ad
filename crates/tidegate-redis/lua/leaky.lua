-- Leaky bucket as a meter. Twin of tidegate-core/src/algorithm/leaky.rs; both obey spec/leaky.md.
-- The water that may still be poured in is the tokens that may still be taken out: it is the token bucket.
local leaky = token_bucket
