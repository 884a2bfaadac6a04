-- What each service and each replica has under way, in shared memory: the control program reads it every second and
-- makes its buckets of it, and a replica that is being drained is let go once it has nothing under way.

local M = {}
local counts = ngx.shared.counts

-- A request that a replica gets, or should have got.
function M.begin(run)
    counts:incr("total|" .. run, 1, 0)
    counts:incr("busy|" .. run, 1, 0)
end

function M.finish(run)
    counts:incr("busy|" .. run, -1)
end

-- How many are held now, this one included.
function M.hold(run)
    return counts:incr("held|" .. run, 1, 0)
end

function M.release(run)
    counts:incr("held|" .. run, -1)
end

function M.take(job)
    counts:incr("job|" .. job, 1, 0)
end

function M.give(job)
    counts:incr("job|" .. job, -1)
end

function M.busy(job)
    return counts:get("job|" .. job) or 0
end

-- True once in so many seconds.
function M.first(key, seconds)
    return counts:add(key, true, seconds)
end

function M.read(runs, jobs)
    local found = { runs = {}, jobs = {} }
    for _, run in ipairs(runs) do
        found.runs[run] = {
            total = counts:get("total|" .. run) or 0,
            busy = counts:get("busy|" .. run) or 0,
            held = counts:get("held|" .. run) or 0,
        }
    end
    for _, job in ipairs(jobs) do
        found.jobs[job] = M.busy(job)
    end
    return found
end

return M
