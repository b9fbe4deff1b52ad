-- What time it is.
return now_us
