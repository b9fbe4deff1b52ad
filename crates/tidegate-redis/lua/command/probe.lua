-- Tests whether scripts can write. The key has no other use, and expires after a second.
return redis.call('SET', KEYS[1], '', 'PX', '1000')
