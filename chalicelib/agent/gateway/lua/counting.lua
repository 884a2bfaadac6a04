-- What each service and each replica has under way, in shared memory: the control program reads it every second and
-- makes its buckets of it, and a replica that is being drained is let go once it has nothing under way.

--
-- Each worker counts what it has itself, so that one that is killed takes its part along: a service that seemed to be
-- busy for ever would never be scaled down.

local M = {}
local counts = ngx.shared.counts
local own

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

local function all(key)
    local sum = 0
    for worker = 0, ngx.worker.count() - 1 do
        sum = sum + (counts:get(key .. "|" .. worker) or 0)
    end
    return sum
end

-- A request that a replica gets, or should have got.
function M.begin(run)
    counts:incr("total|" .. run, 1, 0)
    counts:incr("busy|" .. run .. own, 1, 0)
end

function M.finish(run)
    counts:incr("busy|" .. run .. own, -1)
end

-- How many are held now, this one included.
function M.hold(run)
    counts:incr("held|" .. run .. own, 1, 0)
    return all("held|" .. run)
end

function M.release(run)
    counts:incr("held|" .. run .. own, -1)
end

-- A replica gets a request. What it has from all workers is a number of its own, because each choice looks at that of
-- all replicas.
function M.take(job)
    counts:incr("job|" .. job, 1, 0)
    counts:incr("part|" .. job .. own, 1, 0)
end

function M.give(job)
    counts:incr("job|" .. job, -1)
    counts:incr("part|" .. job .. own, -1)
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
            busy = all("busy|" .. run),
            held = all("held|" .. run),
        }
    end
    for _, job in ipairs(jobs) do
        found.jobs[job] = M.busy(job)
    end
    return found
end

return M
