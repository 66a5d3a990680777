BEGIN TRANSACTION;
CREATE TABLE apps (
    app_id TEXT PRIMARY KEY, state TEXT NOT NULL, attempt INTEGER NOT NULL, token TEXT NOT NULL, spec BLOB NOT NULL,
    pid INTEGER NOT NULL, submitted_at_s REAL NOT NULL, started_at_s REAL, finished_at_s REAL,
    diagnostics TEXT NOT NULL, final TEXT NOT NULL);
INSERT INTO "apps" VALUES('app-0003','RUNNING',1,'cca99f4be1ab227c1f2c77bdcea81896',X'0A0574687265651204757365721A0764656661756C7422080A0673696E676C652A080A0664696769747332110A056A6F622D301A06080210011801206432110A056A6F622D311A0608021001180120643A0508800810014200483258036003790000000000C08240',4711,1700000000.0,NULL,NULL,'','{"gpu_time_s":0.0,"excused_attempts":0,"failed_at_s":[],"finish":"","kill_reason":""}');
INSERT INTO "apps" VALUES('app-0001','FINISHED',1,'a853de411d332639577235185ce873d0',X'0A036F6E651204757365721A0764656661756C7422080A0673696E676C652A080A0664696769747332110A056A6F622D301A06080210011801206432110A056A6F622D311A0608021001180120643A0508800810014200483258036003790000000000C08240',4711,1700000000.0,1700000000.0,1700000100.0,'','{"gpu_time_s":200.0,"excused_attempts":0,"failed_at_s":[],"finish":"0a0846494e49534845441a110a067468656d697311000000000000f43f22130a056a6f622d30120846494e495348454418642a056a6f622d30","kill_reason":"","heartbeat":"099a9999999999d93f11000000000000f83f","page_url":"","engine_id":""}');
INSERT INTO "apps" VALUES('app-0002','RUNNING',1,'e0c0840b67eea302887d20bd99a2b3b6',X'0A0374776F1204757365721A0764656661756C7422080A0673696E676C652A080A0664696769747332110A056A6F622D301A06080210011801206432110A056A6F622D311A0608021001180120643A0508800810014200483258036003790000000000C08240',4711,1700000000.0,1700000000.0,NULL,'','{"gpu_time_s":0.0,"excused_attempts":0,"failed_at_s":[],"finish":"","kill_reason":"no longer wanted","heartbeat":"","page_url":"","engine_id":""}');
CREATE TABLE events (
    sequence INTEGER PRIMARY KEY, time_s REAL NOT NULL, kind TEXT NOT NULL, app_id TEXT NOT NULL, detail TEXT NOT NULL);
INSERT INTO "events" VALUES(1,1700000000.0,'app_submitted','app-0001','{"name":"one","user":"user","tuner":"single","program":"digits","replay":false,"jobs":2,"demand_max_gpus":4}');
INSERT INTO "events" VALUES(2,1700000000.0,'am_started','app-0001','{"attempt":1,"pid":1}');
INSERT INTO "events" VALUES(3,1700000000.0,'am_registered','app-0001','{"attempt":1,"pid":4711}');
INSERT INTO "events" VALUES(4,1700000000.0,'app_submitted','app-0002','{"name":"two","user":"user","tuner":"single","program":"digits","replay":false,"jobs":2,"demand_max_gpus":4}');
INSERT INTO "events" VALUES(5,1700000000.0,'am_started','app-0002','{"attempt":1,"pid":2}');
INSERT INTO "events" VALUES(6,1700000000.0,'am_registered','app-0002','{"attempt":1,"pid":4711}');
INSERT INTO "events" VALUES(7,1700000000.0,'app_submitted','app-0003','{"name":"three","user":"user","tuner":"single","program":"digits","replay":false,"jobs":2,"demand_max_gpus":4}');
INSERT INTO "events" VALUES(8,1700000000.0,'am_started','app-0003','{"attempt":1,"pid":3}');
INSERT INTO "events" VALUES(9,1700000000.0,'am_registered','app-0003','{"attempt":1,"pid":4711}');
INSERT INTO "events" VALUES(10,1700000000.0,'round_started','','{"round_id":1,"reasons":["test"],"free":{"m0":4,"m1":4},"renewable":{},"active":["app-0001","app-0002","app-0003"]}');
INSERT INTO "events" VALUES(11,1700000000.0,'round_reported','','{"round_id":1,"rho":{"app-0001":2.0,"app-0002":2.0,"app-0003":2.0},"absent":[],"demand_gpus":{"app-0001":2,"app-0002":2,"app-0003":2}}');
INSERT INTO "events" VALUES(12,1700000000.0,'round_offered','','{"round_id":1,"apps":["app-0001"]}');
INSERT INTO "events" VALUES(13,1700000000.0,'round_bids','','{"round_id":1,"bids":{},"absent":{"app-0001":"no bid by the deadline"}}');
INSERT INTO "events" VALUES(14,1700000000.0,'round_auctioned','','{"round_id":1,"solve_ms":0.0,"bidders":0,"status":"no bids","market":"","seed":"11824821956436765805"}');
INSERT INTO "events" VALUES(15,1700000000.0,'round_granted','','{"round_id":1,"auction":{},"leftovers":{"app-0001":{"m0":2},"app-0002":{"m0":2},"app-0003":{"m1":2}},"usable_left":0,"refused":{}}');
INSERT INTO "events" VALUES(16,1700000000.0,'lease_granted','app-0001','{"lease_id":1,"gpu":"m0/0","expires_at_s":1700000600.0,"round_id":1}');
INSERT INTO "events" VALUES(17,1700000000.0,'lease_granted','app-0001','{"lease_id":2,"gpu":"m0/1","expires_at_s":1700000600.0,"round_id":1}');
INSERT INTO "events" VALUES(18,1700000000.0,'lease_granted','app-0002','{"lease_id":3,"gpu":"m0/2","expires_at_s":1700000600.0,"round_id":1}');
INSERT INTO "events" VALUES(19,1700000000.0,'lease_granted','app-0002','{"lease_id":4,"gpu":"m0/3","expires_at_s":1700000600.0,"round_id":1}');
INSERT INTO "events" VALUES(20,1700000000.0,'lease_granted','app-0003','{"lease_id":5,"gpu":"m1/0","expires_at_s":1700000600.0,"round_id":1}');
INSERT INTO "events" VALUES(21,1700000000.0,'lease_granted','app-0003','{"lease_id":6,"gpu":"m1/1","expires_at_s":1700000600.0,"round_id":1}');
INSERT INTO "events" VALUES(22,1700000000.0,'round_ended','','{"round_id":1,"duration_ms":0.0,"outcome":"granted"}');
INSERT INTO "events" VALUES(23,1700000100.0,'app_state','app-0001','{"state":"FINISHED","diagnostics":""}');
INSERT INTO "events" VALUES(24,1700000100.0,'lease_released','app-0001','{"lease_id":1,"gpu":"m0/0","expires_at_s":1700000600.0,"reason":"the app ended"}');
INSERT INTO "events" VALUES(25,1700000100.0,'lease_released','app-0001','{"lease_id":2,"gpu":"m0/1","expires_at_s":1700000600.0,"reason":"the app ended"}');
INSERT INTO "events" VALUES(26,1700000150.0,'app_kill_wanted','app-0002','{"reason":"no longer wanted"}');
INSERT INTO "events" VALUES(27,1700000150.0,'round_started','','{"round_id":2,"reasons":["test"]}');
INSERT INTO "events" VALUES(28,1700000150.0,'lease_released','app-0003','{"lease_id":5,"gpu":"m1/0","expires_at_s":1700000600.0,"reason":"idle"}');
CREATE TABLE leases (
    lease_id INTEGER PRIMARY KEY, machine_id TEXT NOT NULL, gpu_index INTEGER NOT NULL, app_id TEXT NOT NULL,
    granted_at_s REAL NOT NULL, expires_at_s REAL NOT NULL, state TEXT NOT NULL, renewals INTEGER NOT NULL,
    job_id TEXT NOT NULL DEFAULT '');
INSERT INTO "leases" VALUES(1,'m0',0,'app-0001',1700000000.0,1700000600.0,'RELEASED',0,'');
INSERT INTO "leases" VALUES(2,'m0',1,'app-0001',1700000000.0,1700000600.0,'RELEASED',0,'');
INSERT INTO "leases" VALUES(3,'m0',2,'app-0002',1700000000.0,1700000600.0,'GRANTED',0,'');
INSERT INTO "leases" VALUES(4,'m0',3,'app-0002',1700000000.0,1700000600.0,'GRANTED',0,'');
INSERT INTO "leases" VALUES(5,'m1',0,'app-0003',1700000000.0,1700000600.0,'RELEASED',0,'');
INSERT INTO "leases" VALUES(6,'m1',1,'app-0003',1700000000.0,1700000600.0,'GRANTED',0,'');
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL);
INSERT INTO "meta" VALUES('grid_origin_s','1700000000.0');
INSERT INTO "meta" VALUES('clock','{"time_s": 1700000150.0, "boot_id": "c3626c04-127f-4c2b-b3fb-092ec99a2b00", "monotonic_s": 30527.161959594}');
CREATE INDEX events_by_app ON events (app_id, sequence);
CREATE UNIQUE INDEX one_holder_a_gpu ON leases (machine_id, gpu_index) WHERE state IN ('GRANTED', 'EXPIRING');
COMMIT;
PRAGMA user_version=2;
