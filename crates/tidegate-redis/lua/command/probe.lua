-- Whether a script may write here now. The key is nobody's, and is gone a moment later.
return redis.call('SET', KEYS[1], '', 'PX', '1000')
