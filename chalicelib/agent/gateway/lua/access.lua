-- Verdicts on tokens: may the bearer call the service? The control program asks the control plane, which doesn't get
-- the token itself. A grant is valid for a minute, a refusal for five seconds; while the control plane can't be
-- reached, grants are valid for five minutes. No verdict outlives its token. Verdicts are cached under the tokens'
-- hashes.

local questions = require "questions"

local M = {}
local judged = ngx.shared.judged
local GOOD, AHEAD, UNREACHABLE, BAD = 60, 50, 300, 5  -- seconds
local SHORTEST = 0.001  -- seconds in the shared dictionary, where 0 means for ever
local SERVICE = "dstack-service."  -- the prefix of tokens for one service (usecases/services/service_tokens.py)
local CACHED = 1  -- seconds for which a worker caches a verdict itself, because hashing the token takes time

-- `asked_at`: when the request was sent, to which the verdict's remaining time refers.
local function store(key, asked_at, ends_in)
    local now = ngx.now()
    local ttl = ends_in and math.min(UNREACHABLE, asked_at + ends_in - now) or UNREACHABLE
    if ttl >= SHORTEST then
        judged:set(key, now, ttl)
    else
        judged:delete(key)
    end
end

local function request(key, token, project, run)
    local asked_at = ngx.now()
    local verdict = questions.ask({ ask = "rights", token = token, project = project, run = run })
    local status = verdict and verdict.status or 503
    if status == 200 then
        store(key, asked_at, verdict.ends_in)
    elseif status == 403 then
        judged:delete(key)
        judged:set("no" .. key, 403, BAD)
    elseif judged:get(key) then
        return 200
    end
    return status
end

local function bearer(caller)
    return caller.authorization and caller.authorization:match("^[Bb][Ee][Aa][Rr][Ee][Rr]%s+([!-~]+)%s*$")
end

local function judge(token, key, project, run)
    local at = judged:get(key)
    local age = at and ngx.now() - at
    if age and age < AHEAD then
        return 200
    end
    if age and age < GOOD and not judged:add("asked" .. key, true, BAD) then
        return 200  -- another request renews the verdict already
    end
    local refused = not at and judged:get("no" .. key)
    return refused or request(key, token, project, run)
end

-- Has the request come from another machine over plain http, where others may have read it?
function M.in_the_open(caller)
    local address = not caller.secure and ngx.var.remote_addr
    return address and address ~= "::1" and address:sub(1, 4) ~= "127."
end

-- 200, 403, or 503 if the verdict can't be found out. `run`: the service; empty for all of the project's.
function M.judge(caller, project, run)
    local now = ngx.now()
    if now < caller.let_in_until then
        return 200
    end
    local token = bearer(caller)
    if not token then
        return 403
    end
    local scope = token:sub(1, #SERVICE) == SERVICE and run or ""
    local key = ngx.sha1_bin(scope .. "|" .. project .. "|" .. token)
    local status = judge(token, key, project, run)
    if status == 200 then
        caller.let_in_until = now + math.min(CACHED, judged:ttl(key) or 0)
    end
    return status
end

return M
