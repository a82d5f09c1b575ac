-- wrk script: one fixed request from the environment, the result as one line of JSON.
-- BENCH_METHOD, BENCH_BODY (file), BENCH_HEADERS ("Name: value" lines)
wrk.method = os.getenv("BENCH_METHOD") or "GET"
local path = os.getenv("BENCH_BODY")
if path and path ~= "" then
  local file = assert(io.open(path, "rb"))
  wrk.body = file:read("*a")
  file:close()
end
for name, value in (os.getenv("BENCH_HEADERS") or ""):gmatch("([^:\n]+): ([^\n]*)") do
  wrk.headers[name] = value
end

function done(summary, latency, requests)
  local errors = summary.errors
  io.write(string.format(
    '\n@@{"requests":%d,"duration_us":%d,"bytes":%d,"p50_us":%d,"p99_us":%d,"max_us":%d,'
      .. '"connect":%d,"read":%d,"write":%d,"status":%d,"timeout":%d}\n',
    summary.requests, summary.duration, summary.bytes, latency:percentile(50),
    latency:percentile(99), latency.max, errors.connect, errors.read, errors.write,
    errors.status, errors.timeout))
end
