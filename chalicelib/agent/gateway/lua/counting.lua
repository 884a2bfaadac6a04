-- What each service and each replica has under way, in shared memory: the control program reads it every second and
-- makes its buckets of it, and a replica that is being drained is let go once it has nothing under way.
--
-- A worker tells there what it has counted ten milliseconds after it began to count: all at once, so that a busy one
-- does it once for hundreds of requests. Of each number it tells its own part, so that one that is killed takes that
-- along: a service that seemed to be busy for ever would never be scaled down.

local M = {}
local SOON = 0.01  -- seconds
local counts = ngx.shared.counts
local own
local total, busy, jobs = {}, {}, {}  -- by run, by run, by job: what has been added and isn't told yet
local telling = false

-- A worker begins, perhaps in the place of one that was killed.
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

local function tell()
    telling = false
    for run, more in pairs(total) do
        counts:incr("total|" .. run, more, 0)
    end
    for run, more in pairs(busy) do
        counts:incr("busy|" .. run .. own, more, 0)
    end
    for job, more in pairs(jobs) do  -- of all workers in one number, too: each choice looks at that of all replicas
        counts:incr("job|" .. job, more, 0)
        counts:incr("part|" .. job .. own, more, 0)
    end
    total, busy, jobs = {}, {}, {}
end

local function tell_soon()
    telling = ngx.timer.at(SOON, tell)
    if not telling then
        tell()  -- the worker is about to end
    end
end

local function all(key)
    local sum = 0
    for worker = 0, ngx.worker.count() - 1 do
        sum = sum + (counts:get(key .. "|" .. worker) or 0)
    end
    return sum
end

-- A request that a replica gets, or should have got.
function M.begin(run)
    total[run] = (total[run] or 0) + 1
    busy[run] = (busy[run] or 0) + 1
    if not telling then
        tell_soon()
    end
end

function M.finish(run)
    busy[run] = (busy[run] or 0) - 1
    if not telling then
        tell_soon()
    end
end

-- How many are held now, this one included.
function M.hold(run)
    counts:incr("held|" .. run .. own, 1, 0)
    return all("held|" .. run)
end

function M.release(run)
    counts:incr("held|" .. run .. own, -1)
end

-- A replica gets a request.
function M.take(job)
    jobs[job] = (jobs[job] or 0) + 1
    if not telling then
        tell_soon()
    end
end

function M.give(job)
    jobs[job] = (jobs[job] or 0) - 1
    if not telling then
        tell_soon()
    end
end

function M.busy(job)
    return (counts:get("job|" .. job) or 0) + (jobs[job] or 0)
end

-- True once in so many seconds.
function M.first(key, seconds)
    return counts:add(key, true, seconds)
end

-- As it was when this was called: what other workers had counted by then they have told since.
function M.read(runs, asked)
    tell()
    if ngx.worker.count() > 1 then
        ngx.sleep(2 * SOON)
    end
    local found = { runs = {}, jobs = {} }
    for _, run in ipairs(runs) do
        found.runs[run] = {
            total = counts:get("total|" .. run) or 0,
            busy = all("busy|" .. run),
            held = all("held|" .. run),
        }
    end
    for _, job in ipairs(asked) do
        found.jobs[job] = counts:get("job|" .. job) or 0
    end
    return found
end

return M
