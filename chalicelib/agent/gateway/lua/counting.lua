-- The current requests of each service and each replica, counted in shared memory. The control program reads the counts
-- every second for its buckets, and a draining replica is let go when it has no requests.
--
-- A worker adds its counts to shared memory ten milliseconds after the first change, all at once, so that a busy
-- worker does that once for hundreds of requests. Each worker has its own part of a number, so that the part of a
-- killed worker can be removed: a service that seemed busy for ever would never be scaled down.

local durations = require "durations"

local M = {}
local SOON = 0.01  -- seconds
local counts = ngx.shared.counts
local own
local total, busy, jobs = {}, {}, {}  -- by run, by run, by job: counts that aren't in shared memory yet
local publishing = false

-- Start a worker, perhaps in place of one that was killed.
function M.start()
    own = "|" .. ngx.worker.id()
    for _, key in ipairs(counts:get_keys(0)) do
        local job = key:match("^part(|.*)|%d+$")
        if key:sub(-#own) == own and (job or key:match("^busy|") or key:match("^held|")) then
            if job then
                counts:incr("job" .. job, -counts:get(key))
            end
            counts:delete(key)
        end
    end
end

local function publish()
    publishing = false
    for run, more in pairs(total) do
        counts:incr("total|" .. run, more, 0)
    end
    for run, more in pairs(busy) do
        counts:incr("busy|" .. run .. own, more, 0)
    end
    for job, more in pairs(jobs) do  -- and in one number for all workers, which each choice among replicas reads
        counts:incr("job|" .. job, more, 0)
        counts:incr("part|" .. job .. own, more, 0)
    end
    total, busy, jobs = {}, {}, {}
    durations.publish()
end

local function publish_soon()
    publishing = ngx.timer.at(SOON, publish)
    if not publishing then
        publish()  -- the worker is ending
    end
end

local function all(key)
    local sum = 0
    for worker = 0, ngx.worker.count() - 1 do
        sum = sum + (counts:get(key .. "|" .. worker) or 0)
    end
    return sum
end

-- Count a request that a replica gets, or would have got.
function M.begin(run)
    total[run] = (total[run] or 0) + 1
    busy[run] = (busy[run] or 0) + 1
    if not publishing then
        publish_soon()
    end
end

function M.finish(run)
    busy[run] = (busy[run] or 0) - 1
    if not publishing then
        publish_soon()
    end
end

-- Count how long an answer took: until its `first_byte`, or the `whole`.
function M.took(run, kind, seconds)
    durations.add(run, kind, math.max(0, seconds))  -- clocks can be set back
    if not publishing then
        publish_soon()
    end
end

-- The number of waiting requests, including this one.
function M.hold(run)
    counts:incr("held|" .. run .. own, 1, 0)
    return all("held|" .. run)
end

function M.release(run)
    counts:incr("held|" .. run .. own, -1)
end

-- Count a request that a replica gets.
function M.take(job)
    jobs[job] = (jobs[job] or 0) + 1
    if not publishing then
        publish_soon()
    end
end

function M.give(job)
    jobs[job] = (jobs[job] or 0) - 1
    if not publishing then
        publish_soon()
    end
end

function M.busy(job)
    return (counts:get("job|" .. job) or 0) + (jobs[job] or 0)
end

-- True once in this many seconds.
function M.first(key, seconds)
    return counts:add(key, true, seconds)
end

-- The counts as of this call: other workers have added theirs meanwhile.
function M.read(runs, job_ids)
    publish()
    if ngx.worker.count() > 1 then
        ngx.sleep(2 * SOON)
    end
    local found = { runs = {}, jobs = {} }
    for _, run in ipairs(runs) do
        local took = durations.read(run)
        found.runs[run] = {
            total = counts:get("total|" .. run) or 0,
            busy = all("busy|" .. run),
            held = all("held|" .. run),
            first_byte = took.first_byte,
            whole = took.whole,
        }
    end
    for _, job in ipairs(job_ids) do
        found.jobs[job] = counts:get("job|" .. job) or 0
    end
    return found
end

return M
