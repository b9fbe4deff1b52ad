-- Calendar window. Twin of tidegate-core/src/algorithm/calendar.rs; both obey spec/calendar.md.
-- State: the window's start and the count in it. Redis has no calendar: the caller sends the edges of three windows
-- around its own time. If Redis's clock is in none of them, the script returns the time, and the caller sends others.
local function calendar(now_us, refunds, cost, count, first_us, second_us, third_us, fourth_us, counted_us, used)
  local time_us = tolerant_time(counted_us, now_us, 1000)
  local start_us, end_us
  if time_us >= first_us and time_us < second_us then
    start_us, end_us = first_us, second_us
  elseif time_us >= second_us and time_us < third_us then
    start_us, end_us = second_us, third_us
  elseif time_us >= third_us and time_us < fourth_us then
    start_us, end_us = third_us, fourth_us
  else
    return nil
  end
  return window(now_us, refunds, cost, count, start_us, end_us, counted_us, used)
end
