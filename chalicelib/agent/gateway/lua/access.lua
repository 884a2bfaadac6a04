-- May the bearer of this token call the project's services? The control program asks the control plane; what it said
-- is good for a minute, a refusal for five seconds. While the control plane can't be asked, who was let in within the
-- last five minutes still is.

local asking = require "asking"

local M = {}
local judged = ngx.shared.judged
local keys, kept = {}, 0  -- by project and header: a hash takes longer than all else that is done for a request
local MOST, LONG = 1000, 1024  -- headers; characters of one: anybody may send them
local GOOD, AHEAD, AWAY, BAD = 60, 50, 300, 5  -- seconds

local function ask(key, token, project)
    local verdict = asking.ask({ ask = "rights", token = token, project = project })
    local status = verdict and verdict.status
    if status == 200 then
        judged:set(key, ngx.now(), AWAY)
    elseif status == 403 then
        judged:delete(key)
        judged:set("no" .. key, 403, BAD)
    end
    return status
end

-- Under which the verdict is kept, and the token; nil without one.
local function read(header, project)
    local token = header:match("^[Bb][Ee][Aa][Rr][Ee][Rr]%s+(%S+)%s*$")
    if not token then
        return nil
    end
    local known = { key = ngx.sha1_bin(project .. "|" .. token), token = token }
    if #header > LONG then
        return known
    elseif kept >= MOST then
        keys, kept = {}, 0
    end
    keys[project] = keys[project] or {}
    keys[project][header] = known
    kept = kept + 1
    return known
end

-- 200, 403, or 503 if nobody can say.
function M.judge(header, project)
    if not header then
        return 403
    end
    local of_project = keys[project]
    local known = of_project and of_project[header] or read(header, project)
    if not known then
        return 403
    end
    local key = known.key
    local at = judged:get(key)
    local age = at and ngx.now() - at
    if age and age < AHEAD then
        return 200
    end
    if age and age < GOOD and not judged:add("asked" .. key, true, BAD) then
        return 200  -- another request is asking already
    end
    local refused = not at and judged:get("no" .. key)
    return refused or ask(key, known.token, project) or (at and 200) or 503
end

return M
