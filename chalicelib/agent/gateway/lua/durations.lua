-- How long answers took, in shared memory: of each run and kind a number for each cell of a histogram, and the seconds
-- in total. They are apart from the other counts: if there is no room for more, only these are lost.

local M = {}
local BOUNDS = {  -- seconds, as in domain/latencies.py
    0.005, 0.01, 0.015, 0.025, 0.04, 0.06, 0.1, 0.15, 0.25, 0.4, 0.6, 1.0,
    1.5, 2.5, 4.0, 6.0, 10.0, 15.0, 25.0, 40.0, 60.0, 100.0, 150.0, 300.0,
}
local KINDS = { "first_byte", "whole" }
local durations = ngx.shared.durations
local pending = {}  -- by key: what isn't in shared memory yet

local function add(key, more)
    pending[key] = (pending[key] or 0) + more
end

function M.add(run, kind, seconds)
    local cell = 0
    while cell < #BOUNDS and seconds > BOUNDS[cell + 1] do
        cell = cell + 1
    end
    local place = kind .. "|" .. run .. "|"
    add(place .. cell, 1)
    add(place .. "seconds", seconds)
end

function M.publish()
    for key, more in pairs(pending) do
        durations:incr(key, more, 0)
    end
    pending = {}
end

-- Those of a run by kind: {histogram, seconds}; none of a kind that wasn't counted yet.
function M.read(run)
    local found = {}
    for _, kind in ipairs(KINDS) do
        local place = kind .. "|" .. run .. "|"
        local seconds = durations:get(place .. "seconds")
        if seconds then
            local histogram = {}
            for cell = 0, #BOUNDS do
                histogram[cell + 1] = durations:get(place .. cell) or 0
            end
            found[kind] = { histogram = histogram, seconds = seconds }
        end
    end
    return found
end

return M
