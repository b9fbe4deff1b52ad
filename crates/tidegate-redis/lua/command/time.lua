-- Returns the time.
return now_us
