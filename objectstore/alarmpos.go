package objectstore

// Pos returns the alarm's place in the index: reading goes on after it.
func (a Alarm) Pos() AlarmPos { return AlarmPos{key: string(alarmKey(dueMS(a.Due), a.ID))} }
